"""Who calls, what a call may take, and whose turn it is.

Each call gets a `Ticket` at the `Door`, by an ordered list of rules (`rules`). docs/architecture.md has a
diagram of its way and a table of the rules.

- who calls: `tokens`, `guessers`
- what it may take: `state`, `messages` (bytes), `images` (the queue of a model), `allowance` (the limits of a
  token)
- whose turn it is: `fair_queue`, `turns`, `bulk`
"""
