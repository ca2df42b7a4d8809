"""Fine-tunes a folder on classes of texts by the Trainer of transformers, with the recipe of `train.main`.

    python tests/real/trainer.py FOLDER TRAIN.tsv DEV.tsv SEED STEPS RATE

32 texts a batch, at most 64 tokens each, AdamW with beta2 0.999, epsilon 1e-6 and decay 0.01 of matrices, a linear
schedule with a tenth of warm-up, gradients of norm 1. It prints one line of JSON.
"""

import csv
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

LENGTH, BATCH = 64, 32


def rows(path):
    """Texts and classes of a file without a header."""
    with Path(path).open(encoding="utf-8", newline="") as lines:
        return list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


class Texts(torch.utils.data.Dataset):
    """Tokens and classes; padding is that of a batch."""

    def __init__(self, path, tokenizer):
        texts, labels = zip(*rows(path), strict=True)
        self.encoded = tokenizer(list(texts), truncation=True, max_length=LENGTH)["input_ids"]
        self.labels = [int(label) for label in labels]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"input_ids": self.encoded[index], "labels": self.labels[index]}


def main(folder, train, dev, seed, steps, rate):
    """Trains, and prints the accuracy of the development texts."""
    transformers.set_seed(int(seed))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    with tempfile.TemporaryDirectory() as out:
        arguments = transformers.TrainingArguments(
            out, seed=int(seed), max_steps=int(steps), learning_rate=float(rate), per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=BATCH, warmup_steps=round(int(steps) * 0.1), lr_scheduler_type="linear",
            weight_decay=0.01, adam_epsilon=1e-6, adam_beta2=0.999, max_grad_norm=1.0, logging_steps=50,
            save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        trainer = transformers.Trainer(
            model, arguments, train_dataset=Texts(train, tokenizer), eval_dataset=Texts(dev, tokenizer),
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
            compute_metrics=lambda outputs: {"accuracy": np.mean(outputs.predictions.argmax(-1) == outputs.label_ids)},
        )  # fmt: skip
        trainer.train()
        metrics = trainer.evaluate()
    print(json.dumps({"seed": int(seed), "accuracy": metrics["eval_accuracy"], "loss": metrics["eval_loss"]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
