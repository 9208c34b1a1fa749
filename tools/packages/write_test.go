package main

import (
	"slices"
	"testing"

	"github.com/goreleaser/nfpm/v2/files"
)

// A package has the directories that are kubelot's alone, and no other.
func TestOwnDirectories(t *testing.T) {
	got := ownDirectories(files.Contents{
		{Destination: "/usr/lib/kubelot/bin/kubelot-lease"},
		{Destination: "/usr/lib/systemd/system/kubelot-lease.service"},
		{Destination: "/usr/lib/systemd/system/kubelot.target.wants/kubelot-lease.service"},
		{Destination: "/etc/default/kubelot"},
	}, "rpm")
	want := []string{"/usr/lib/kubelot", "/usr/lib/kubelot/bin", "/usr/lib/systemd/system/kubelot.target.wants"}
	if !slices.Equal(got, want) {
		t.Errorf("the directories are %q, want %q", got, want)
	}
}
