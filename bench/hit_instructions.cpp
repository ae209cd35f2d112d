// SPDX-License-Identifier: Apache-2.0
// Mallocs and frees of one cached size through the C API, on the simulated device: to be run under
// callgrind with two numbers of pairs. The difference is the instructions of those pairs alone, a
// figure that no other program on the machine moves. tests/golden holds it.
#include <quarry/quarry.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  const long pairs = argc == 2 ? std::strtol(argv[1], nullptr, 10) : 0;
  if (pairs <= 0) {
    std::fputs("usage: quarry_hit_instructions PAIRS\n", stderr);
    return 2;
  }
  quarry_init_options options{};
  options.struct_size = sizeof(options);
  options.conf = "";
  options.driver = QUARRY_DRIVER_SIM;
  quarry_status status = quarry_init(&options);
  for (long i = 0; i < pairs && status == QUARRY_OK; ++i) {
    void* ptr = nullptr;
    status = quarry_malloc(&ptr, 65'536, 0, nullptr);
    quarry_free(ptr);
  }
  if (status == QUARRY_OK) return 0;
  std::fprintf(stderr, "%s\n", quarry_get_last_error());
  return 1;
}
