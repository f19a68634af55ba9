// fio's external engine "braid": jobs on a remote device, through Braid's C interface
// (capi/braid/braid.h), without the kernel.
//
//   fio --name=x --ioengine=external:/usr/lib/.../braid-fio.so --target=10.0.0.1/disk.img --rw=...
//
// Each job has a context of its own, opened by the process or thread that runs it; the one that
// starts the jobs opens the device for a moment, for its size. Buffers are the device's own memory,
// so that nothing is copied on this side. The target is an option, as fio takes ':' in a filename
// for a separator; the file is a name only.
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "braid/braid.h"
#include "fio.h"
#include "optgroup.h"

struct engine_options {
  void* padding;  // fio's
  char* target;
  char* access;
  char* device;
  char* wire;
  char* key;
  char* poll;
  char* give_up_after;
  char* log;
  unsigned load_reads;
};

struct engine {
  struct braid_context* context;
  struct braid_device* device;
  struct braid_io* queued;  // not yet submitted
  unsigned queued_count;
  // Fetched all together, given to fio as it asks for them: those from `first` to `given` last.
  struct braid_completion* completions;
  unsigned ready;
  unsigned given;
  unsigned first;
  unsigned depth;
  unsigned under_way;  // submitted, and not yet fetched
  bool paced;       // fio pauses between requests
  bool load_reads;  // see the option
  uint32_t write_flags;
};

// How often a wait looks whether fio wants to end, and how many such looks a server that is away
// may still take to come back: a second.
enum { LOOK_NS = 100 * 1000 * 1000, LOOKS_MAX = 10 };

#define STRING_OPTION(option, member, text)                                                    \
  {                                                                                            \
    .name = option, .lname = option, .help = text, .category = FIO_OPT_C_ENGINE,               \
    .group = FIO_OPT_G_INVALID, .type = FIO_OPT_STR_STORE,                                     \
    .off1 = offsetof(struct engine_options, member),                                           \
  }

static struct fio_option options[] = {
    STRING_OPTION("target", target, "HOST[:PORT][,HOST[:PORT]...]/EXPORT, or memory:SIZE, "
                                    "file:/PATH, null:SIZE"),
    STRING_OPTION("access", access, "rw, ro or migration; as the job needs it by default"),
    STRING_OPTION("device", device, "the RDMA device, rdma for all, soft0 for the software HCA"),
    STRING_OPTION("wire", wire, "auto or tcp"),
    STRING_OPTION("key", key, "file with the client's key"),
    STRING_OPTION("poll_budget", poll, "how long to spin before sleeping, 50us; never: no sleep"),
    STRING_OPTION("give_up_after", give_up_after, "how long I/O waits for a server that is away"),
    STRING_OPTION("braid_log", log, "off, error, warning, info or debug"),
    {
        .name = "load_reads",
        .lname = "load what was read",
        .help = "1: loads a word of each 64 bytes read, as who uses them does; a job that verifies "
                "nothing leaves them in the server's cache",
        .category = FIO_OPT_C_ENGINE,
        .group = FIO_OPT_G_INVALID,
        .type = FIO_OPT_BOOL,
        .off1 = offsetof(struct engine_options, load_reads),
        .def = "0",
    },
    {.name = NULL},
};

static int complain(struct thread_data* td, struct braid_context* context, int status) {
  log_err("fio: braid: %s\n", braid_error(context));
  td_verror(td, -status, "braid");
  return 1;
}

static int set(struct braid_context* context, const char* name, const char* value) {
  return value == NULL ? 0 : braid_set(context, name, value);
}

/// A context with the job's device. 0, or what was said and is fio's error.
static int open_device(struct thread_data* td, const char* access, struct braid_context** context,
                       struct braid_device** device) {
  const struct engine_options* o = td->eo;
  char depth[16];
  int status = 0;

  if (o->target == NULL) {
    log_err("fio: braid: the job has no target; want target=HOST[:PORT]/EXPORT\n");
    td_verror(td, EINVAL, "braid: target");
    return 1;
  }
  *context = braid_new();
  if (*context == NULL) {
    td_verror(td, ENOMEM, "braid_new");
    return 1;
  }
  snprintf(depth, sizeof depth, "%u", td->o.iodepth);
  const char* const settings[][2] = {
      {"access", access},     {"device", o->device}, {"wire", o->wire},
      {"key", o->key},        {"poll", o->poll},     {"give-up-after", o->give_up_after},
      {"log", o->log},        {"queue-depth", depth},
  };
  for (size_t i = 0; status == 0 && i < sizeof settings / sizeof settings[0]; ++i)
    status = set(*context, settings[i][0], settings[i][1]);
  if (status == 0) status = braid_open(*context, o->target, device);
  if (status == 0) return 0;
  complain(td, *context, status);
  braid_free(*context);
  *context = NULL;
  return 1;
}

/// For the size only: jobs that write may have it already. What a process or file cannot open for
/// reading only is its own.
static const char* access_for_size(const struct engine_options* o) {
  const bool made_new = o->target != NULL && (strncmp(o->target, "memory:", 7) == 0 ||
                                              strncmp(o->target, "null:", 5) == 0);
  return made_new ? "rw" : "ro";
}

static const char* access_for_job(const struct thread_data* td) {
  const struct engine_options* o = td->eo;
  if (o->access != NULL) return o->access;
  return td_write(td) || td_trim(td) ? "rw" : access_for_size(o);
}

/// In the process that starts the jobs.
static int engine_setup(struct thread_data* td) {
  struct braid_context* context;
  struct braid_device* device;
  struct braid_info info = {.struct_bytes = sizeof info};
  struct fio_file* file;
  unsigned i;

  if (!td->files_index) {
    add_file(td, "braid", 0, 0);
    td->o.nr_files = td->o.nr_files ?: 1;
    td->o.open_files++;
  }
  if (open_device(td, access_for_size(td->eo), &context, &device) != 0) return 1;
  const int status = braid_info(device, &info);
  if (status != 0) complain(td, context, status);
  braid_free(context);
  for_each_file(td, file, i) {
    file->real_file_size = info.size_bytes;
    fio_file_set_size_known(file);
  }
  return status != 0;
}

static void engine_cleanup(struct thread_data* td) {
  struct engine* e = td->io_ops_data;
  if (e == NULL) return;
  braid_free(e->context);
  free(e->queued);
  free(e->completions);
  free(e);
  td->io_ops_data = NULL;
}

static bool is_paced(const struct thread_options* o) {
  bool paced = o->thinktime != 0 || o->io_submit_mode != IO_MODE_INLINE || o->read_iolog_file;
  for (int i = 0; i < DDIR_RWDIR_CNT; ++i) paced |= o->rate[i] != 0 || o->rate_iops[i] != 0;
  return paced;
}

/// In the process or thread of the job.
static int engine_init(struct thread_data* td) {
  // fio would find out later, and go on without any.
  if (fio_option_is_set(&td->o, mem_type)) {
    log_err("fio: braid: mem/iomem: buffers are the device's own memory; leave it out\n");
    td_verror(td, EINVAL, "braid: mem");
    return 1;
  }
  struct engine* e = calloc(1, sizeof *e);
  if (e == NULL) {
    td_verror(td, ENOMEM, "braid");
    return 1;
  }
  td->io_ops_data = e;
  e->depth = td->o.iodepth;
  e->paced = is_paced(&td->o);
  e->load_reads = ((const struct engine_options*)td->eo)->load_reads != 0;
  e->write_flags = td->o.sync_io != 0 ? BRAID_FUA : 0;
  e->queued = calloc(e->depth, sizeof *e->queued);
  e->completions = calloc(e->depth, sizeof *e->completions);
  if (e->queued == NULL || e->completions == NULL) {
    td_verror(td, ENOMEM, "braid");
    return 1;
  }
  return open_device(td, access_for_job(td), &e->context, &e->device);
}

static enum fio_q_status engine_queue(struct thread_data* td, struct io_u* io_u) {
  struct engine* e = td->io_ops_data;
  struct braid_io* io = &e->queued[e->queued_count];

  fio_ro_check(td, io_u);
  if (e->queued_count == e->depth) return FIO_Q_BUSY;
  io->flags = 0;
  io->device = e->device;
  io->buffer = NULL;
  io->offset = io_u->offset;
  io->length = io_u->xfer_buflen;
  io->user_data = (uintptr_t)io_u;
  switch (io_u->ddir) {
    case DDIR_READ:
      io->op = BRAID_OP_READ;
      io->buffer = io_u->xfer_buf;
      break;
    case DDIR_WRITE:
      io->op = BRAID_OP_WRITE;
      io->flags = e->write_flags;
      io->buffer = io_u->xfer_buf;
      break;
    case DDIR_TRIM:
      io->op = BRAID_OP_DISCARD;
      break;
    case DDIR_SYNC:
    case DDIR_DATASYNC:
    case DDIR_SYNC_FILE_RANGE:
      io->op = BRAID_OP_FLUSH;
      io->offset = 0;
      io->length = 0;
      break;
    default:
      io_u->error = EINVAL;
      td_verror(td, EINVAL, "braid: an operation that it does not know");
      return FIO_Q_COMPLETED;
  }
  ++e->queued_count;
  return FIO_Q_QUEUED;
}

static int submit_queued(struct thread_data* td) {
  struct engine* e = td->io_ops_data;
  if (e->queued_count == 0) return 0;
  const int taken = braid_submit(e->context, e->queued, e->queued_count);
  if (taken < 0) {
    complain(td, e->context, taken);
    return taken;
  }
  io_u_mark_submit(td, (unsigned)taken);
  e->queued_count -= (unsigned)taken;
  e->under_way += (unsigned)taken;
  if (e->queued_count > 0)
    memmove(e->queued, e->queued + taken, e->queued_count * sizeof *e->queued);
  return 0;
}

/// fio submits after each completion that it takes: while it has more to take, it comes for those,
/// and what it has submitted until then goes together. A quarter of all at most: the server shall
/// have something to do meanwhile.
static int engine_commit(struct thread_data* td) {
  const struct engine* e = td->io_ops_data;
  const bool holds = e->given < e->ready && 4 * e->queued_count < e->depth && !e->paced;
  return holds ? 0 : submit_queued(td);
}

/// Forgets what fio has taken.
static void drop_given(struct engine* e) {
  e->ready -= e->given;
  memmove(e->completions, e->completions + e->given, e->ready * sizeof *e->completions);
  e->given = 0;
}

static struct io_u* io_u_of(const struct braid_completion* completion) {
  return (struct io_u*)(uintptr_t)completion->user_data;
}

static void load(const struct io_u* io_u) {
  const volatile uint64_t* const words = io_u->xfer_buf;
  for (size_t i = 0; i < io_u->xfer_buflen / sizeof *words; i += 64 / sizeof *words) (void)words[i];
}

/// Before fio takes the time, so that it counts, as a copy into the buffer would.
static void load_reads(const struct braid_completion* completions, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    const struct io_u* io_u = io_u_of(&completions[i]);
    if (completions[i].result >= 0 && io_u->ddir == DDIR_READ) load(io_u);
  }
}

/// fio itself looks between requests only, and this one may never end.
static bool wants_to_end(struct thread_data* td) {
  if (td->parent != NULL) td = td->parent;  // of a worker that submits for a job
  if (td->terminate) return true;
  return td->o.timeout != 0 && !in_ramp_time(td) && utime_since_now(&td->epoch) >= td->o.timeout;
}

/// braid_poll() into what is free. It tells of all that is under way sooner or later, also where
/// fio wants to end and the server is away: fio ends no job before it has all of its requests back.
static int fetch(struct thread_data* td, int64_t timeout_ns) {
  struct engine* e = td->io_ops_data;
  unsigned looks = 0;
  for (int64_t left_ns = timeout_ns;;) {
    const int64_t look_ns = left_ns < 0 || left_ns > LOOK_NS ? LOOK_NS : left_ns;
    const int more = braid_poll(e->context, e->completions + e->ready, e->depth - e->ready,
                                look_ns);
    if (more > 0) e->under_way -= (unsigned)more;
    if (more != 0 || e->under_way == 0 || look_ns == left_ns) return more;
    if (left_ns > 0) left_ns -= look_ns;
    looks = wants_to_end(td) ? looks + 1 : 0;
    if (looks >= LOOKS_MAX) braid_give_up(e->device);
  }
}

static int engine_getevents(struct thread_data* td, unsigned int min, unsigned int max,
                            const struct timespec* limit) {
  struct engine* e = td->io_ops_data;
  int64_t timeout_ns = -1;

  if (min == 0) timeout_ns = 0;
  if (min > 0 && limit != NULL) timeout_ns = limit->tv_sec * 1000000000LL + limit->tv_nsec;
  if (e->ready - e->given < (min > 0 ? min : 1)) {
    drop_given(e);
    const int status = submit_queued(td);
    if (status < 0) return status;
  }
  while (e->ready - e->given < min || (min == 0 && e->ready == e->given)) {
    const int more = fetch(td, timeout_ns);
    if (more < 0) return complain(td, e->context, more), more;
    if (more == 0) break;
    if (e->load_reads) load_reads(e->completions + e->ready, (unsigned)more);
    e->ready += (unsigned)more;
  }
  const unsigned left = e->ready - e->given;
  e->first = e->given;
  e->given += left < max ? left : max;
  return (int)(e->given - e->first);
}

static struct io_u* engine_event(struct thread_data* td, int event) {
  struct engine* e = td->io_ops_data;
  const struct braid_completion* completion = &e->completions[e->first + (unsigned)event];
  struct io_u* io_u = io_u_of(completion);

  io_u->error = 0;
  io_u->resid = 0;
  if (completion->result < 0) {
    io_u->error = (unsigned)-completion->result;
    io_u->resid = io_u->xfer_buflen;
    log_err("fio: braid: %s\n", braid_explain(e->device));
  }
  return io_u;
}

static int engine_iomem_alloc(struct thread_data* td, size_t bytes) {
  struct engine* e = td->io_ops_data;
  td->orig_buffer = braid_alloc(e->device, bytes);
  if (td->orig_buffer == NULL) log_err("fio: braid: %s\n", braid_error(e->context));
  return td->orig_buffer == NULL;
}

static void engine_iomem_free(struct thread_data* td) {
  struct engine* e = td->io_ops_data;
  if (e == NULL || td->orig_buffer == NULL) return;
  // With requests under way it refuses; then it goes with the device, which ends them first.
  braid_dealloc(e->device, td->orig_buffer);
}

static int engine_file(struct thread_data* td, struct fio_file* file) {
  (void)td;
  (void)file;
  return 0;
}

/// What fio looks up in the library.
__attribute__((visibility("default"))) struct ioengine_ops ioengine = {
    .name = "braid",
    .version = FIO_IOOPS_VERSION,
    .flags = FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL | FIO_RAWIO,
    .setup = engine_setup,
    .init = engine_init,
    .cleanup = engine_cleanup,
    .queue = engine_queue,
    .commit = engine_commit,
    .getevents = engine_getevents,
    .event = engine_event,
    .open_file = engine_file,
    .close_file = engine_file,
    .invalidate = engine_file,
    .get_file_size = engine_file,
    .iomem_alloc = engine_iomem_alloc,
    .iomem_free = engine_iomem_free,
    .option_struct_size = sizeof(struct engine_options),
    .options = options,
};
