"""Answers to requests over HTTP, by the models of folders: `python -m train.serve`.

app.py           an event loop: what all paths share
paths.py         what each path answers
body.py          the fields of a request
completions.py   those of a text to write; streams.py: its pieces, as they come
abilities.py     what a folder can answer
looking.py       pages of where a model looks
engine.py        the thread that computes: requests of one kind share batches
writing.py       texts that join and leave the batch of a language model
warming.py       programs that are compiled before the first request
page.py          the page at /
"""
