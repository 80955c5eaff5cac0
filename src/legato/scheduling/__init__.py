"""Which tokens the next step evaluates.

Pure policy: plain data in, plain data out. No I/O, no clock, no threads, no llama.cpp, so that thousands of cases can
be tested on a fake engine, and a simulator can use the same code.
"""
