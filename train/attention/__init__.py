"""Attention of models of texts as pictures: `python -m train.predict --attention=FILE.html|.png`."""
