"""What a design costs: what its authors write, what checking it takes, what binding and building take at run time."""
