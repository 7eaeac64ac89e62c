"""The paper's parser, for `constituency_parsing.py`: trees as text, its run, and what it is compared with."""
