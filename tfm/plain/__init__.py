"""Four models, each on a page of plain `jax.numpy` over the library's own parameters, equal to the library.

Read `bert`, then `gpt`, `translation` and `vit`: BERT has the block that all share; GPT normalizes before each function
and adds a cache; the translator attends to a second text; ViT reads patches in place of tokens.

A page imports nothing of the project, and has no mesh, no dropout and no variants. `tests/plain` compares losses and
gradients with those of the tasks.
"""
