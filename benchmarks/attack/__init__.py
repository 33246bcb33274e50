"""What is promised, attacked: ``python -m benchmarks.attack`` tries to break it and counts what broke; seeds are fixed."""
