#include "cli/map_words.h"

namespace braid::cli {

using base::Errc;
using base::make_error;
using base::Result;
using bnbd::wire::AccessMode;

Result<AccessMode> parse_access(const std::string& text) {
  for (const AccessMode mode :
       {AccessMode::kReadWrite, AccessMode::kReadOnly, AccessMode::kMigration})
    if (text == to_string(mode)) return mode;
  return make_error(Errc::kInvalid, "access \"{}\": want rw, ro or migration", text);
}

Result<std::vector<bnbd::FilterSpec>> parse_filters(const std::vector<std::string>& texts,
                                                    AccessMode access) {
  if (texts.size() > bnbd::kFiltersMax)
    return make_error(Errc::kInvalid, "{} filters: {} are the most", texts.size(),
                      bnbd::kFiltersMax);
  std::vector<bnbd::FilterSpec> specs;
  for (const std::string& text : texts) {
    BRAID_TRY(bnbd::FilterSpec spec, bnbd::parse_filter(text));
    // What another client writes would be taken for damage.
    if (spec.kind == bnbd::FilterKind::kChecksum && access == AccessMode::kMigration)
      return make_error(Errc::kInvalid,
                        "filter \"{}\" with access migration: another client may write, too, and "
                        "its data would be taken for damage",
                        to_string(spec));
    specs.push_back(spec);
  }
  return specs;
}

}  // namespace braid::cli
