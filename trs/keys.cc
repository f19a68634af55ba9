#include "trs/keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cctype>

namespace braid::trs {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;

namespace {

bool is_name_character(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  return letter || c == '.' || c == '_' || c == '@' || c == '-';
}

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

bool is_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return false;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  const auto digit = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '/';
  };
  return std::all_of(text.begin(), text.end() - static_cast<std::ptrdiff_t>(padding), digit);
}

/// Wiped when it goes.
struct Wiped {
  std::vector<uint8_t> bytes;
  explicit Wiped(size_t size) : bytes(size) {}
  ~Wiped() { OPENSSL_cleanse(bytes.data(), bytes.size()); }
  Wiped(const Wiped&) = delete;
  Wiped& operator=(const Wiped&) = delete;
};

}  // namespace

Status check_key_name(std::string_view name) {
  const bool right = !name.empty() && name.size() <= kKeyNameBytesMax && name.front() != '-' &&
                     std::all_of(name.begin(), name.end(), is_name_character);
  if (right) return {};
  return make_error(Errc::kInvalid,
                    "this is no name of a key: 1 to {} letters, digits and characters of \"._@-\" "
                    "are right, not beginning with '-'",
                    kKeyNameBytesMax);
}

Key::Key(std::string_view name, std::span<const uint8_t> secret)
    : name_(name), secret_(secret.begin(), secret.end()) {}

Key::~Key() {
  OPENSSL_cleanse(secret_.data(), secret_.size());
}

Result<KeyPtr> Key::create(std::string_view name, std::span<const uint8_t> secret) {
  BRAID_CHECK(check_key_name(name));
  if (secret.size() < kSecretBytesMin || secret.size() > kSecretBytesMax) {
    return make_error(Errc::kInvalid, "key \"{}\" has {} bytes; {} to {} are right", name,
                      secret.size(), kSecretBytesMin, kSecretBytesMax);
  }
  return KeyPtr(new Key(name, secret));
}

Result<KeyPtr> Key::random(std::string_view name, base::Host& host) {
  Wiped secret(kSecretBytesMin);
  host.random(std::as_writable_bytes(std::span(secret.bytes)));
  return create(name, secret.bytes);
}

Result<KeyPtr> Key::parse(std::string_view line) {
  line = trimmed(line);
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) {
    return make_error(Errc::kInvalid, "no key: NAME:BASE64 is right, as braid key new prints it");
  }
  const std::string_view name = line.substr(0, colon);
  BRAID_CHECK(check_key_name(name));
  const std::string_view text = line.substr(colon + 1);
  if (!is_base64(text) || text.size() / 4 * 3 > kSecretBytesMax + 2) {
    return make_error(Errc::kInvalid,
                      "what stands behind \"{}:\" is not the base64 of {} to {} bytes", name,
                      kSecretBytesMin, kSecretBytesMax);
  }
  Wiped secret(text.size() / 4 * 3);
  const int decoded =
      EVP_DecodeBlock(secret.bytes.data(), reinterpret_cast<const unsigned char*>(text.data()),
                      static_cast<int>(text.size()));
  if (decoded < 0) {
    return make_error(Errc::kInvalid, "what stands behind \"{}:\" is no base64", name);
  }
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  return create(name, std::span(secret.bytes).first(static_cast<size_t>(decoded) - padding));
}

bool Key::same_secret(const Key& other) const {
  return secret_.size() == other.secret_.size() &&
         CRYPTO_memcmp(secret_.data(), other.secret_.data(), secret_.size()) == 0;
}

std::string Key::line() const {
  // EVP_EncodeBlock ends what it writes with a NUL.
  std::string text((secret_.size() + 2) / 3 * 4 + 1, '\0');
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), secret_.data(),
                  static_cast<int>(secret_.size()));
  text.pop_back();
  return name_ + ":" + text;
}

Status KeyRing::add(KeyPtr key) {
  const std::string name = key->name();
  if (keys_.emplace(name, std::move(key)).second) return {};
  return make_error(Errc::kExists, "there are two keys by the name \"{}\"", name);
}

KeyPtr KeyRing::find(std::string_view name) const {
  const auto found = keys_.find(name);
  return found == keys_.end() ? nullptr : found->second;
}

std::vector<std::string> KeyRing::names() const {
  std::vector<std::string> all;
  for (const auto& [name, key] : keys_) all.push_back(name);
  return all;
}

Result<std::shared_ptr<const KeyRing>> parse_keys(std::string_view text) {
  if (text.size() > kKeysTextBytesMax) {
    return make_error(Errc::kInvalid, "{} bytes of keys; at most {} are right", text.size(),
                      kKeysTextBytesMax);
  }
  auto ring = std::make_shared<KeyRing>();
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    auto key = Key::parse(line);
    if (!key.ok()) return key.error().with("line {}", number);
    const Status added = ring->add(std::move(*key));
    if (!added.ok()) return added.error().with("line {}", number);
  }
  return std::shared_ptr<const KeyRing>(std::move(ring));
}

}  // namespace braid::trs
