"""Every variant and kind of model beside BERT, GPT and translation, a file each.

The core imports it through `tfm.tables` alone.
"""
