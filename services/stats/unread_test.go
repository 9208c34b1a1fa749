package stats

import (
	"errors"
	"testing"
	"testing/synctest"
)

// Before the pods have been read from the bus there is no answer, not one without pods.
func TestPodsThatAreNotReadYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Service{read: make(chan struct{})}
		if v, err := s.view(t.Context(), nil); !errors.Is(err, errUnread) {
			t.Errorf("%+v, %v", v, err)
		}
	})
}
