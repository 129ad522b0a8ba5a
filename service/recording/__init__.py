"""What else gets the answers, where it is wanted: the audit trail, receipts for feedback, and a shadow."""
