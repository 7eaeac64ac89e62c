"""The synchronous English-German grammar that the synthetic `demo` corpus was drawn from.

Bottom up: `words` (word lists), `lexicon` (lexemes and their forms), `links` (which word came from
which), `phrases` (agreement), `clauses` (word order), `sampler` (random phrases and clauses),
`main_clauses` and `complex_sentences` (the constructions), `sentences` (how often each is drawn),
`corpus` (the splits), `__main__` (writes them where the package reads them).
"""
