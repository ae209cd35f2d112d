// SPDX-License-Identifier: Apache-2.0
// A C99 program that uses libquarry as an inference engine would: blocks on a stream, a temporary
// that a second stream also uses, a request that does not fit, and the figures at the end. Needs
// no GPU: run it with QUARRY_DRIVER=sim.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "quarry/quarry.h"

#define MIB ((size_t)1 << 20)

static void check(quarry_status status, const char* what) {
  if (status == QUARRY_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, quarry_get_status_name(status), quarry_get_last_error());
  exit(EXIT_FAILURE);
}

static void on_out_of_memory(const quarry_oom_report* report, void* user) {
  int* count = user;
  ++*count;
  printf("out of memory on device %d: %" PRIu64 " MiB asked for, %" PRIu64
         " MiB allocated, %" PRIu64 " MiB cached, %" PRIu64 " MiB free on the device\n",
         report->device, report->requested_bytes >> 20, report->allocated_bytes >> 20,
         report->cached_bytes >> 20, report->device_free_bytes >> 20);
}

int main(void) {
  const int device = 0;
  const quarry_stream compute = NULL;                      // the legacy default stream
  const quarry_stream copy = (quarry_stream)(uintptr_t)2;  // this thread's default stream

  // Not needed: the first call would do it, from the environment alone.
  check(quarry_init(NULL), "quarry_init");
  check(quarry_configure("max_split_size_mb:256"), "quarry_configure");
  int out_of_memory_count = 0;
  check(quarry_add_oom_callback(on_out_of_memory, &out_of_memory_count, NULL),
        "quarry_add_oom_callback");

  // Weights stay; activations come and go. From the second step on no driver call is made.
  void* weights = NULL;
  check(quarry_malloc(&weights, 512 * MIB, device, compute), "weights");
  for (int step = 0; step < 1000; ++step) {
    void* activation = NULL;
    void* output = NULL;
    check(quarry_malloc(&activation, 48 * MIB, device, compute), "activation");
    check(quarry_malloc(&output, 3 * MIB, device, compute), "output");
    quarry_free(activation);
    // `copy` reads the output too: the memory is reused only once that is done.
    check(quarry_record_stream(output, copy), "quarry_record_stream");
    quarry_free(output);
  }

  quarry_stats stats = {0};
  stats.struct_size = sizeof(stats);
  check(quarry_get_stats(device, &stats), "quarry_get_stats");
  printf("allocated %" PRId64 " MiB (peak %" PRId64 "), reserved %" PRId64 " MiB, %" PRId64
         " driver allocations for 2001 requests\n",
         stats.allocated_bytes >> 20, stats.allocated_peak_bytes >> 20, stats.reserved_bytes >> 20,
         stats.num_device_alloc);

  // A request that no device holds: a code, a report, and the program goes on.
  void* impossible = NULL;
  const quarry_status status = quarry_malloc(&impossible, (size_t)1 << 50, device, compute);
  if (status != QUARRY_ERROR_OUT_OF_MEMORY || out_of_memory_count != 1) {
    fprintf(stderr, "1 PiB was not refused\n");
    return EXIT_FAILURE;
  }

  quarry_free(weights);
  check(quarry_empty_cache(device), "quarry_empty_cache");
  check(quarry_shutdown(), "quarry_shutdown");
  return EXIT_SUCCESS;
}
