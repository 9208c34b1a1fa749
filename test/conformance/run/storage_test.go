package run

import (
	"testing"

	"sigs.k8s.io/yaml"
)

// The suite ignores what it doesn't know of the description, so a wrong word would only leave specs out.
func TestDriverDescription(t *testing.T) {
	var description struct {
		StorageClass  struct{ FromName bool }
		InlineVolumes []struct{ Attributes map[string]string }
		DriverInfo    struct {
			Name                 string
			MaxFileSize          int64
			SupportedSizeRange   struct{ Min string }
			SupportedFsType      map[string]struct{}
			SupportedMountOption map[string]struct{}
			StressTestOptions    struct{ NumPods, NumRestarts int }
			Capabilities         map[string]bool
		}
	}
	if err := yaml.UnmarshalStrict([]byte(testDriver), &description); err != nil {
		t.Fatal(err)
	}
	if info := description.DriverInfo; info.Name != driverName || len(info.Capabilities) == 0 ||
		len(description.InlineVolumes) != 2 {
		t.Errorf("the description is %+v", description)
	}
}
