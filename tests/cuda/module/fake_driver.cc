// The presence of a driver, as a libcuda.so.1: the runtime that would call it is a fake too.
extern "C" int cuInit(unsigned) { return 0; }
