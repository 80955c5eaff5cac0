"""llama.cpp's library behind a small typed wrapper: model, vocabulary, context, batch, sampler.

The only package that imports `llama_cpp`. Everything above speaks of paths, numpy arrays and plain data classes.
"""
