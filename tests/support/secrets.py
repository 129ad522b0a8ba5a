"""A file of secrets for receipts, as `openssl rand -hex 32` writes one."""

from pathlib import Path

SECRET, OTHER_SECRET = "5e" * 32, "07" * 32


def secret_file(folder: Path, *secrets: str) -> Path:
    file = folder / "feedback-secret"
    file.write_text("".join(f"{secret}\n" for secret in secrets or (SECRET,)))
    return file
