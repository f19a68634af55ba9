// Writes a block of a remote disk, reads it back and compares; then reads some more in a batch.
//
//   check HOST[:PORT]/EXPORT        (its first blocks are overwritten)
#include <braid/braid.h>
#include <stdio.h>
#include <string.h>

enum { kBlock = 4096, kBatch = 8 };

static int failed(struct braid_context* context, const char* what) {
  fprintf(stderr, "%s: %s\n", what, braid_error(context));
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) return fprintf(stderr, "usage: %s HOST[:PORT]/EXPORT\n", argv[0]), 2;
  struct braid_context* context = braid_new();
  if (context == NULL) return perror("braid_new"), 1;
  struct braid_device* disk;
  if (braid_set(context, "give-up-after", "30s") < 0) return failed(context, "give-up-after");
  if (braid_open(context, argv[1], &disk) < 0) return failed(context, "open");
  struct braid_info info = {.struct_bytes = sizeof info};
  if (braid_info(disk, &info) < 0) return failed(context, "info");
  printf("%s: %llu bytes\n", argv[1], (unsigned long long)info.size_bytes);

  // Memory that is read and written without a copy; any other would do, too.
  char* memory = braid_alloc(disk, kBatch * kBlock);
  if (memory == NULL) return failed(context, "memory");
  for (int i = 0; i < kBatch; ++i) memset(memory + i * kBlock, 'a' + i, kBlock);
  if (braid_pwrite(disk, memory, kBatch * kBlock, 0, BRAID_FUA) < 0)
    return failed(context, "write");
  memset(memory, 0, kBatch * kBlock);

  struct braid_io reads[kBatch];
  memset(reads, 0, sizeof reads);
  for (int i = 0; i < kBatch; ++i)
    reads[i] = (struct braid_io){.op = BRAID_OP_READ, .device = disk, .buffer = memory + i * kBlock,
                                 .offset = (uint64_t)i * kBlock, .length = kBlock,
                                 .user_data = (uint64_t)i};
  if (braid_submit(context, reads, kBatch) != kBatch) return failed(context, "submit");
  for (int done = 0; done < kBatch;) {
    struct braid_completion ends[kBatch];
    const int count = braid_poll(context, ends, kBatch, -1);
    if (count < 0) return failed(context, "poll");
    for (int i = 0; i < count; ++i) {
      const char* block = memory + ends[i].user_data * kBlock;
      if (ends[i].result < 0) return fprintf(stderr, "%s\n", braid_explain(disk)), 1;
      if (block[0] != 'a' + (int)ends[i].user_data || memcmp(block, block + 1, kBlock - 1) != 0)
        return fprintf(stderr, "block %d is not what was written\n", (int)ends[i].user_data), 1;
    }
    done += count;
  }
  printf("read %d blocks as they were written\n", kBatch);
  return braid_free(context) < 0;
}
