// Keys by which clients and servers prove to each other who they are (docs/authentication.md).
//
// A key has a name, which is told on the wire, and a secret, which never is: it is wiped when its
// object goes, is never logged, and cannot be copied. In text a key is a line "NAME:BASE64"; blank
// lines and those that begin with '#' are comments.
// Threads: any; a key and a ring never change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.h"
#include "base/result.h"

namespace braid::trs {

inline constexpr size_t kKeyNameBytesMax = 63;
inline constexpr size_t kSecretBytesMin = 32;
inline constexpr size_t kSecretBytesMax = 128;
inline constexpr size_t kKeysTextBytesMax = 1 << 20;

class Key {
 public:
  /// kInvalid: a name that is none, or a secret of a length that is not between those above.
  static base::Result<std::shared_ptr<const Key>> create(std::string_view name,
                                                         std::span<const uint8_t> secret);
  /// A new one, of 32 random bytes.
  static base::Result<std::shared_ptr<const Key>> random(std::string_view name, base::Host& host);
  /// Its line. kInvalid says what is wrong with it, and never what stands behind the colon.
  static base::Result<std::shared_ptr<const Key>> parse(std::string_view line);
  ~Key();
  Key(const Key&) = delete;
  Key& operator=(const Key&) = delete;

  const std::string& name() const { return name_; }
  std::span<const uint8_t> secret() const { return secret_; }
  bool same_secret(const Key& other) const;  // in constant time
  /// Its line, without the end of line: the secret itself.
  std::string line() const;

 private:
  Key(std::string_view name, std::span<const uint8_t> secret);
  const std::string name_;
  std::vector<uint8_t> secret_;
};
using KeyPtr = std::shared_ptr<const Key>;

/// 1 to 63 letters, digits and the characters "._@-", not beginning with '-'.
base::Status check_key_name(std::string_view name);

/// The keys that a server takes, by name. Empty: it takes none, and so lets in nobody.
class KeyRing {
 public:
  /// kExists: the name is there.
  base::Status add(KeyPtr key);
  KeyPtr find(std::string_view name) const;  // or null
  size_t size() const { return keys_.size(); }
  std::vector<std::string> names() const;

 private:
  std::map<std::string, KeyPtr, std::less<>> keys_;
};

/// A file's text. Errors name the line and are about its form, never about its content.
base::Result<std::shared_ptr<const KeyRing>> parse_keys(std::string_view text);

}  // namespace braid::trs
