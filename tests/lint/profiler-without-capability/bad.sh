docker run --gpus all me/x ncu --set full ./a  # expect: profiler-without-capability
