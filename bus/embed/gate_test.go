package embed

import (
	"errors"
	"testing"
)

// A member that connects again and again takes no other's place, and neither do clients that don't say who they are.
func TestConnectionsOfAMemberAreBounded(t *testing.T) {
	var s seats
	for _, member := range []string{"lease", ""} {
		for range maxPerMember {
			if err := s.take(member); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.take(member); !errors.Is(err, errTooMany) {
			t.Errorf("one more of %q: %v", member, err)
		}
		if err := s.take("status"); err != nil {
			t.Errorf("another member's connection: %v", err)
		}
		s.leave(member)
		if err := s.take(member); err != nil {
			t.Errorf("where one of %q has gone: %v", member, err)
		}
	}
	for s.all < maxClients {
		s.all++
	}
	if err := s.take("pleg"); !errors.Is(err, errTooMany) {
		t.Errorf("more than %d: %v", maxClients, err)
	}
}
