"""What stands before all calls: against pages of other sites, and requests that lie about themselves."""
