package main

import (
	"fmt"
	"regexp"
)

var (
	releaseVersion = regexp.MustCompile(`^v([0-9]+\.[0-9]+\.[0-9]+)(~?[a-z0-9.]+)?(?:-([0-9]+)-g([0-9a-f]+))?(-dirty)?$`)
	commitVersion  = regexp.MustCompile(`^([0-9a-f]{7,40}|devel)(-dirty)?$`)
)

// packageVersion is a version as dpkg and rpm order it: v0.2.0-5-g1a2b3c4 becomes 0.2.0+5.g1a2b3c4, which is after
// 0.2.0 and before 0.2.1. What git has no release for comes before all releases.
func packageVersion(version string) (string, error) {
	dirty := func(flag string) string {
		if flag == "" {
			return ""
		}
		return ".dirty"
	}
	if m := releaseVersion.FindStringSubmatch(version); m != nil {
		text := m[1] + m[2]
		switch {
		case m[3] != "":
			text += "+" + m[3] + ".g" + m[4] + dirty(m[5])
		case m[5] != "":
			text += "+0" + dirty(m[5])
		}
		return text, nil
	}
	if m := commitVersion.FindStringSubmatch(version); m != nil {
		return "0.0.0+0.g" + m[1] + dirty(m[2]), nil
	}
	return "", fmt.Errorf("version %q: want one like v0.2.0 or v0.2.0-5-g1a2b3c4", version)
}
