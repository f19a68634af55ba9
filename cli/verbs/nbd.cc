// `braid nbd`: serves remote and local devices to NBD clients, in the foreground.
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/braidd_parts.h"
#include "cli/nbd_arguments.h"
#include "cli/node.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

void add_nbd(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<NbdArguments>();
  CLI::App* verb = app.add_subcommand(
      "nbd", "serve devices to NBD clients (libnbd, QEMU, fio, nbd-client), in the foreground");
  verb->add_option("TARGET", arguments->targets,
                   "[NAME=]HOST[:PORT]/EXPORT as braid map takes it, file:PATH, memory:SIZE or "
                   "null:SIZE; the first one is what a client gets that names none, "
                   "or it is refused while that one is not there")
      ->required();
  verb->add_option("--unix", arguments->unix_path, "the unix socket to serve at");
  verb->add_option("--listen", arguments->listen,
                   "ADDRESS[:PORT] to serve at by TCP, to whoever can reach it (default, without "
                   "--unix: 127.0.0.1:10809); port 0 takes a free one")
      ->allow_extra_args(false);
  verb->add_flag("--read-only", arguments->read_only, "take no writes");
  verb->add_option("--give-up-after", arguments->give_up_after,
                   "let I/O fail when a device's server is away for so long: 30s, 5m or never")
      ->capture_default_str();
  verb->add_option("--key", arguments->key, "file with this client's key for the servers");
  verb->add_option("--reactors", arguments->reactors,
                   "threads that carry each remote device's requests; clients' connections are "
                   "spread over them (default: 1)")
      ->check(CLI::Range(1U, kReactorsMax));
  verb->add_flag(
      "--guard-reads", arguments->guard_reads,
      "reads of remote devices land in buffers of this node's and are copied from there: "
      "the server cannot change what has been read");
  verb->add_option(
          "--wire", arguments->wire,
          "to servers: auto: shared memory inside this host, TCP to others; tcp: TCP for all")
      ->check(CLI::IsMember({"auto", "tcp"}))
      ->capture_default_str();
  verb->add_option("--node-name", context.node_name, "this node's name (default: nbd.PID)");
  add_device_option(*verb, context);
  add_poll_option(*verb, context);
  add_metrics_option(*verb, context);
  verb->footer(
      "Examples:\n"
      "  braid nbd 10.0.0.1/disk.img --unix /run/disk.sock\n"
      "      then: nbdinfo 'nbd+unix:///disk.img?socket=/run/disk.sock'\n"
      "  braid nbd 10.0.0.1,10.1.0.1/disk.img file:/srv/b.img --listen 127.0.0.1\n"
      "  braid nbd ram=memory:1G --unix /tmp/ram.sock --read-only");
  verb->callback([&context, arguments] { context.parts->serve_nbd(context, *arguments); });
}

}  // namespace braid::cli
