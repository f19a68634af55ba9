#include "base/error.h"

#include <cerrno>

namespace braid::base {

std::string_view to_string(Errc code) {
  switch (code) {
    case Errc::kOk:
      return "ok";
    case Errc::kInvalid:
      return "invalid";
    case Errc::kNotFound:
      return "not-found";
    case Errc::kExists:
      return "exists";
    case Errc::kBusy:
      return "busy";
    case Errc::kPermission:
      return "permission";
    case Errc::kReadOnly:
      return "read-only";
    case Errc::kNotSupported:
      return "not-supported";
    case Errc::kOutOfRange:
      return "out-of-range";
    case Errc::kNoMemory:
      return "no-memory";
    case Errc::kNoSpace:
      return "no-space";
    case Errc::kIo:
      return "io-error";
    case Errc::kTimedOut:
      return "timed-out";
    case Errc::kCanceled:
      return "canceled";
    case Errc::kDisconnected:
      return "disconnected";
    case Errc::kRefused:
      return "refused";
    case Errc::kProtocol:
      return "protocol";
    case Errc::kWouldBlock:
      return "would-block";
    case Errc::kStale:
      return "stale";
    case Errc::kDead:
      return "dead";
  }
  return "unknown";  // a value from outside the enumeration, for example a damaged one
}

Errc errc_from_errno(int sys_errno) {
  switch (sys_errno) {
    case 0:
      return Errc::kOk;
    case EINVAL:
    case ENAMETOOLONG:
    case EBADF:
    case EFAULT:
    case EISDIR:
    case ELOOP:
      return Errc::kInvalid;
    case ENOENT:
    case ENODEV:
    case ENXIO:
    case ENOTDIR:
    case ESRCH:
      return Errc::kNotFound;
    case EEXIST:
    case EADDRINUSE:
      return Errc::kExists;
    case EBUSY:
    case ETXTBSY:
      return Errc::kBusy;
    case EPERM:
    case EACCES:
    case EXDEV:
      return Errc::kPermission;
    case EROFS:
      return Errc::kReadOnly;
    case ENOSYS:
    case EOPNOTSUPP:
    case EPROTONOSUPPORT:
    case ENOTTY:
      return Errc::kNotSupported;
    case ERANGE:
    case EOVERFLOW:
    case EFBIG:
      return Errc::kOutOfRange;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
      return Errc::kNoMemory;
    case ENOSPC:
    case EDQUOT:
      return Errc::kNoSpace;
    case ETIMEDOUT:
      return Errc::kTimedOut;
    case ECANCELED:
      return Errc::kCanceled;
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
    case ESHUTDOWN:
    case ECONNABORTED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
      return Errc::kDisconnected;
    case ECONNREFUSED:
      return Errc::kRefused;
    case EPROTO:
    case EBADMSG:
    case EMSGSIZE:
      return Errc::kProtocol;
    case EAGAIN:
    case ETOOMANYREFS:  // descriptors that are on their way to a peer, which has to read first
      return Errc::kWouldBlock;
    case ESTALE:
      return Errc::kStale;
    default:
      return Errc::kIo;
  }
}

int errno_from_errc(Errc code) {
  switch (code) {
    case Errc::kOk:
      return 0;
    case Errc::kInvalid:
      return EINVAL;
    case Errc::kNotFound:
      return ENOENT;
    case Errc::kExists:
      return EEXIST;
    case Errc::kBusy:
      return EBUSY;
    case Errc::kPermission:
      return EACCES;
    case Errc::kReadOnly:
      return EROFS;
    case Errc::kNotSupported:
      return EOPNOTSUPP;
    case Errc::kOutOfRange:
      return ERANGE;
    case Errc::kNoMemory:
      return ENOMEM;
    case Errc::kNoSpace:
      return ENOSPC;
    case Errc::kIo:
      return EIO;
    case Errc::kTimedOut:
      return ETIMEDOUT;
    case Errc::kCanceled:
      return ECANCELED;
    case Errc::kDisconnected:
      return ENOTCONN;
    case Errc::kRefused:
      return ECONNREFUSED;
    case Errc::kProtocol:
      return EPROTO;
    case Errc::kWouldBlock:
      return EAGAIN;
    case Errc::kStale:
      return ESTALE;
    case Errc::kDead:
      return EIO;
  }
  return EIO;
}

}  // namespace braid::base
