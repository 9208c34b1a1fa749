package topic

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// Sampling is how many of a million pods are traced (tracing.samplingRatePerMillion of the configuration). All daemons
// choose the same pods.
type Sampling int32

// million is the sampling of all pods.
const million = 1_000_000

// Has reports whether the pod is traced. It takes a hash of the UID, since in a UUID some bits are the same for all
// pods.
func (s Sampling) Has(uid string) bool {
	if s <= 0 {
		return false
	}
	sum := sha256.Sum256([]byte(uid))
	return binary.BigEndian.Uint64(sum[:])%million < uint64(s)
}

// TraceID is the ID of the pod's trace: its UID without dashes. A UID that isn't 16 bytes in hexadecimal digits, which
// a static pod's manifest may have, gives a hash.
func TraceID(uid string) (id [16]byte) {
	digits := strings.ReplaceAll(uid, "-", "")
	if len(digits) == hex.EncodedLen(len(id)) {
		if _, err := hex.Decode(id[:], []byte(digits)); err == nil && id != [16]byte{} {
			return id
		}
	}
	sum := sha256.Sum256([]byte(uid))
	return [16]byte(sum[:])
}
