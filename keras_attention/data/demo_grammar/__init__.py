"""The synchronous English-German grammar behind the synthetic `demo` corpus.

Bottom up: `words` (word lists), `lexicon` (lexemes and their forms), `phrases` (agreement),
`clauses` (word order), `sampler` (random phrases and clauses), `main_clauses` and
`complex_sentences` (the constructions), `sentences` (how often each is drawn).
"""
