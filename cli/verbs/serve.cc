// `braid serve`: exports the files beneath a directory, in the foreground.
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/braidd_parts.h"
#include "cli/serve_arguments.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

void add_serve_options(CLI::App& app, ServeArguments& arguments) {
  app.add_option("--listen", arguments.listen,
                 "ADDRESS[:PORT] to listen on (default: :1234); port 0 takes a free one. Given, "
                 "and beyond loopback, it takes other hosts and users by TCP. Several times: "
                 "clients may have a path by each")
      ->allow_extra_args(false);
  app.add_option("--wire", arguments.wire,
                 "auto: shared memory inside this host, TCP to others; tcp: TCP for all")
      ->check(CLI::IsMember({"auto", "tcp"}))
      ->capture_default_str();
  app.add_option("--memory", arguments.memory,
                 "NAME=SIZE: also export memory, lost when the server ends");
  app.add_flag("--huge-pages", arguments.huge_pages,
               "take all of that memory at the start, in pages of 2 MiB: random reads and writes "
               "are faster, and no discard gives any back");
  app.add_option("--null", arguments.null,
                 "NAME=SIZE: also export a disk that forgets writes and reads zeroes");
  app.add_option("--keys", arguments.keys,
                 "file of the keys of clients that are let in (braid key new); without it whoever "
                 "reaches the address is");
  app.add_flag("--read-only", arguments.read_only, "refuse to open anything for writing");
  app.add_flag("--block-devices", arguments.block_devices,
               "also export block devices that lie beneath the root");
  app.add_option("--reactors", arguments.reactors,
                 "threads that serve; the connections of clients are spread over them, the disks "
                 "are the first one's")
      ->check(CLI::Range(1U, kReactorsMax))
      ->capture_default_str();
  app.add_option("--queue-depth", arguments.queue_depth, "requests in flight per client session")
      ->check(CLI::Range(kQueueDepthMin, kQueueDepthMax))
      ->capture_default_str();
  app.add_option("--max-io", arguments.max_io,
                 "largest request; bigger ones are split by the client")
      ->capture_default_str();
  app.add_option("--chunk-guard", arguments.chunk_guard,
                 "what keeps a client from data that it has sent: open: nothing; windows: its key "
                 "is taken away, or the data is copied where device or client cannot; copy: always "
                 "copied")
      ->check(CLI::IsMember({"open", "windows", "copy"}))
      ->capture_default_str();
}

void add_serve(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<ServeArguments>();
  CLI::App* verb =
      app.add_subcommand("serve", "export disks and files beneath a directory, in the foreground");
  verb->add_option("ROOT", arguments->root,
                   "the directory; its files are exported by their names beneath it; with "
                   "/%SESSNAME% at its end each client session has the directory of its "
                   "name, with --keys that of its key's name");
  verb->add_option("--node-name", context.node_name, "this node's name (default: serve.PID)");
  add_serve_options(*verb, *arguments);
  add_device_option(*verb, context);
  add_poll_option(*verb, context);
  add_metrics_option(*verb, context);
  verb->footer(
      "Examples:\n"
      "  braid serve /srv/disks                        then, here: braid map localhost/disk.img\n"
      "  braid serve /srv/disks --listen 10.0.0.1:1234 --read-only\n"
      "  braid serve /srv/disks --listen 10.0.0.1 --keys /etc/braid/keys\n"
      "  braid serve --memory ram=1G --listen 127.0.0.1:0\n"
      "  braid serve --memory ram=64G --huge-pages\n"
      "  braid serve /srv/disks --listen 10.0.0.1 --listen 10.1.0.1    two paths for clients\n"
      "  braid serve /srv/disks --listen 10.0.0.1 --reactors 4         for many clients by TCP\n"
      "  braid serve /srv/disks --device mlx5_0");
  verb->callback([&context, arguments] { context.parts->serve(context, *arguments); });
}

}  // namespace braid::cli
