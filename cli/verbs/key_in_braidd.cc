// The part of `braid key` that reads and makes keys.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/linux_host.h"
#include "cli/braidd_parts.h"
#include "cli/key_file.h"

namespace braid::cli {

using base::Result;

namespace {

Result<trs::KeyPtr> new_key(const std::string& name) {
  BRAID_TRY(const auto host, base::create_linux_host({}));
  return trs::Key::random(name, *host);
}

}  // namespace

void make_key(Context& context, const std::string& name, const std::string& output) {
  if (const base::Status fit = trs::check_key_name(name); !fit.ok())
    return report(context, fit.error().with("\"{}\"", name), kUsage);
  auto key = new_key(name);
  if (!key.ok()) return report(context, key.error());
  if (output.empty()) {
    if (context.json) return print_json({{"name", name}, {"line", (*key)->line()}});
    std::cout << (*key)->line() << "\n" << std::flush;
    return;
  }
  if (const base::Status written = write_key(output, **key); !written.ok())
    return report(context, written.error());
  if (context.json)
    print_json({{"name", name}, {"file", output}});
  else
    std::cout << "key \"" << name << "\" is in " << output
              << "; its line goes into the server's file, too\n";
}

void list_keys(Context& context, const std::string& file) {
  auto keys = read_keys(file);
  if (!keys.ok()) return report(context, keys.error());
  const std::vector<std::string> names = (*keys)->names();
  if (context.json)
    print_json({{"file", file}, {"keys", names}});
  else
    for (const std::string& name : names) std::cout << name << "\n";
}

}  // namespace braid::cli
