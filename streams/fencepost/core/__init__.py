"""The pure core: state, event and time in; state and commands out."""
