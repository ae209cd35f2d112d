// SPDX-License-Identifier: Apache-2.0
// Preloaded under PyTorch, so that it finds one GPU where there is none, as far as
// torch.cuda.MemPool asks. Whatever needs a real one still fails.
#define FAKE __attribute__((visibility("default")))

FAKE int cudaGetDeviceCount(int* count) {
  *count = 1;
  return 0;
}

FAKE int cudaGetDevice(int* device) {
  *device = 0;
  return 0;
}

FAKE int cudaSetDevice(int device) {
  return device == 0 ? 0 : 101;  // cudaErrorInvalidDevice
}

FAKE int cudaGetLastError(void) {
  return 0;
}

FAKE int cudaPeekAtLastError(void) {
  return 0;
}

FAKE int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return 0;
}
