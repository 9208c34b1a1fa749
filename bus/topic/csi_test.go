package topic

import (
	"fmt"
	"strings"
	"testing"
)

func TestValidateCSINodeInfo(t *testing.T) {
	many := map[string]string{}
	for i := range 100 {
		many[fmt.Sprintf("example.com/%040d", i)] = "v"
	}
	long := strings.Repeat("x", 64)
	for name, c := range map[string]struct {
		info CSINodeInfo
		want string
	}{
		"plain":        {CSINodeInfo{Name: "D.example", NodeID: "i-1", Topology: map[string]string{"a/b": "c", "d": ""}}, ""},
		"longest ID":   {CSINodeInfo{Name: "d", NodeID: strings.Repeat("x", 256)}, ""},
		"no ID":        {CSINodeInfo{Name: "d"}, "the node ID is empty"},
		"long ID":      {CSINodeInfo{Name: "d", NodeID: strings.Repeat("x", 257)}, "the node ID has 257 bytes"},
		"two lines":    {CSINodeInfo{Name: "d", NodeID: "a\nb"}, "control character"},
		"name":         {CSINodeInfo{Name: "a..b", NodeID: "i"}, `the driver's name "a..b" is no DNS subdomain`},
		"long name":    {CSINodeInfo{Name: long, NodeID: "i"}, "the driver's name has 64 characters"},
		"key":          {CSINodeInfo{Name: "d", NodeID: "i", Topology: map[string]string{"a b": "c"}}, `topology key "a b"`},
		"empty key":    {CSINodeInfo{Name: "d", NodeID: "i", Topology: map[string]string{"": "c"}}, `topology key ""`},
		"value":        {CSINodeInfo{Name: "d", NodeID: "i", Topology: map[string]string{"a": "b c"}}, `"b c", the value`},
		"long value":   {CSINodeInfo{Name: "d", NodeID: "i", Topology: map[string]string{"a": long}}, "the value of"},
		"much to say":  {CSINodeInfo{Name: "d", NodeID: "i", Topology: many}, "the topology has 5300 bytes in 100 keys"},
		"two problems": {CSINodeInfo{Name: "d", Topology: map[string]string{"a b": "c"}}, `topology key "a b"`},
	} {
		err := c.info.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// One volume's strange name doesn't keep the others from the Node. What the API takes is any text.
func TestNamesOfVolumesInUseAreAnyText(t *testing.T) {
	names := []string{"kubernetes.io/csi/d^handle\n", "kubernetes.io/iscsi/10.0.0.1\t:3260:iqn:0"}
	if err := checkVolumesInUse("", VolumesInUse{Names: names}); err != nil {
		t.Error(err)
	}
	if err := checkVolumesInUse("", VolumesInUse{Names: []string{strings.Repeat("a", maxText+1)}}); err == nil {
		t.Error("a name of any length is taken")
	}
}
