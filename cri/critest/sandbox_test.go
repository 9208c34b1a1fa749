package critest

import (
	"net/netip"
	"testing"
)

// Pods of a long run have an address each, as their status must have.
func TestAddresses(t *testing.T) {
	seen := map[netip.Addr]bool{}
	for number := range 200_000 {
		ip, err := netip.ParseAddr(address(number))
		if err != nil || seen[ip] {
			t.Fatalf("sandbox %d has the address %q: %v, taken: %v", number, address(number), err, seen[ip])
		}
		seen[ip] = true
	}
}
