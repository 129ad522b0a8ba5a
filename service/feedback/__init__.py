"""Feedback: signed receipts of answers, and how right the answers were once labels are known."""
