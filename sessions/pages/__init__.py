"""What a person sees: reports, pages, diagnosis and the backlog, of one run or many."""
