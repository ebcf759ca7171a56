"""What the committed results say: figures, the answers that follow from them, and three ways to tell both.

`evidence` reads, `figures` counts, `summary` has all of it, `answers` puts it into sentences, `layout` into tables;
`tables` (terminal), `page` (HTML) and `machine` (JSON) write them. Nothing is run and nothing is measured here.
"""
