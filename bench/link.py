def run(bench): pass
