"""The gradient step of verifierd's trainer: fine-tuning with LoRA on transformers and peft, started by trainer(1)."""
