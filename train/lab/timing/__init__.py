"""A stopwatch: steps, passes and peers, timed in turns (`python -m train.bench`, whose options are `options`).

random_task     plain models on random tokens or pictures
timing          steps of a job: compilation, batches, computation; prefill and decoding
turns           several jobs in turns, and the ratio of their times
scaling         steps by the length of texts, and exponents
profile         the time of each operation of a step
passes          passes over texts: `writing` continues or translates them, `reading` labels them
peers/          PyTorch and CTranslate2 in processes of their own
accelerator     six models on this machine's accelerator (`.ci/accelerator`)
"""
