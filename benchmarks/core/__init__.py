"""What every benchmark uses: measuring processes, memory, the environment, settings and plots."""
