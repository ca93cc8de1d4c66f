"""What one step computes: plan, page tables, masks, and the batch."""
