"""The same small API and back ends, designed in several ways."""
