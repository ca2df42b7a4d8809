"""Answers to requests over HTTP, by the models of folders: `python -m train.serve`.

app.py         paths, bodies, streams        an event loop: many requests wait at a time
body.py        the fields of a request
abilities.py   what a folder can answer
engine.py      the thread that computes: requests of one kind share batches
writing.py     texts that join and leave the batch of a language model
"""
