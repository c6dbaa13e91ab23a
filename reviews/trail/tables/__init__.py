"""Where the trail's rows are stored: SQLite or Postgres."""
