// A dummy libcuda.so.1 that pretends that there is a driver; the CUDA runtime is a fake, too.
extern "C" int cuInit(unsigned) { return 0; }
