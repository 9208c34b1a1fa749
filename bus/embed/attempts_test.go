package embed

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// forged begins the content of a message that says by what it was published.
const forged = "forged: "

// describe says by which attempt a message came where it must not be.
func describe(m *nats.Msg) string {
	text := string(m.Data)
	switch {
	case strings.HasPrefix(text, forged):
		return strings.TrimPrefix(text, forged)
	case strings.Contains(text, `"seq"`) && strings.Contains(text, `"stream"`) && !strings.Contains(text, "type"):
		return "reply to a message"
	case strings.Contains(text, "stream_info_response"):
		return "reply to STREAM.INFO"
	case m.Header.Get("Nats-Stream") != "":
		return "reply to a direct get"
	case strings.HasPrefix(text, secret), m.Header.Get("Status") == "100":
		return "delivered by a reader"
	}
	return "by " + text + " " + m.Reply
}

// try sends one message of the attacker.
func (s *siege) try(t *testing.T, subject, reply string, header nats.Header, data string) {
	t.Helper()
	s.attempts++
	m := &nats.Msg{Subject: subject, Reply: reply, Header: header, Data: []byte(data)}
	if err := s.nc.PublishMsg(m); err != nil {
		t.Fatalf("attempt %d, on %s: %v; the last error was %v", s.attempts, subject, err, s.nc.LastError())
	}
}

// forbidden is an inbox of the attacker's own, where no answer may come.
func (s *siege) forbidden(of string) string {
	return "_INBOX." + s.member.Name + ".forbidden." + strings.NewReplacer("*", "_", ">", "_").Replace(of)
}

// reads are what the attacker may read, with the stream.
func (s *siege) reads() map[string]string {
	found := map[string]string{}
	for _, filter := range s.member.ReadsState {
		found[filter] = "STATE"
		if strings.HasPrefix(filter, "health.") {
			found[filter] = "OWN"
		}
	}
	for _, filter := range s.member.ReadsEvent {
		found[filter] = "EVENT"
	}
	if s.member.ReadsAll {
		found["pod.update.*"], found["event.*"] = "STATE", "EVENT"
	}
	return found
}

// inject tries to have a message appear on the victim's subject.
func (s *siege) inject(t *testing.T, victim string) {
	t.Helper()
	s.try(t, victim, "", nil, forged+"plain")
	s.try(t, victim, "", nats.Header{"Kubelot-Daemon": {"podsync"}}, forged+"with headers")
	for _, own := range append(s.member.Publishes, s.member.Calls...) {
		own = example(own)
		s.try(t, own, victim, nil, "{}")
		for _, name := range []string{
			"Nats-Trace-Dest", "Nats-Schedule-Target", "Nats-Expected-Last-Subject-Sequence-Subject",
		} {
			s.try(t, own, "", nats.Header{name: {victim}, "Nats-Schedule": {"@every 1s"}, "Nats-Trace-Only": {"true"}}, "{}")
		}
	}
	for _, call := range s.member.Serves {
		s.try(t, "_REPLY.gc."+call+".x", victim, nil, "{}")
	}
	for filter, stream := range s.reads() {
		s.try(t, "$JS.API.STREAM.INFO."+stream, victim, nil, "")
		s.try(t, "$JS.API.DIRECT.GET."+stream+"."+example(filter), victim, nil, "")
		config := s.config(filter)
		config["deliver_subject"] = victim
		s.create(t, stream, filter, config)
		config["flow_control"], config["idle_heartbeat"] = false, 0
		s.create(t, stream, filter, config)
		s.try(t, "$JS.API.CONSUMER.MSG.NEXT."+stream+"."+config["name"].(string), victim, nil, "1")
	}
}

// eavesdrop tries to read what is on the subject.
func (s *siege) eavesdrop(t *testing.T, victim string) {
	t.Helper()
	if !strings.HasPrefix(victim, "_REPLY."+s.member.Name) && s.isPattern(victim) {
		s.listen(t, victim)
	}
	for _, stream := range []string{"STATE", "OWN", "EVENT", "HISTORY", "POSITION"} {
		if s.mayRead(victim) || s.mayRead(strings.TrimPrefix(victim, "history.")) {
			return
		}
		s.create(t, stream, victim, s.config(victim))
		s.create(t, stream, "history."+victim, s.config("history."+victim))
		s.try(t, "$JS.API.DIRECT.GET."+stream+"."+victim, s.forbidden(victim), nil, "")
		s.try(t, "$JS.API.DIRECT.GET."+stream, s.forbidden(victim), nil, `{"last_by_subj":"`+victim+`"}`)
		s.try(t, "$JS.API.STREAM.MSG.GET."+stream, s.forbidden(victim), nil, `{"last_by_subj":"`+victim+`"}`)
	}
	for filter, stream := range s.reads() {
		for _, body := range []string{
			`{"last_by_subj":"` + victim + `"}`, `{"multi_last":[">"],"batch":100}`, `{"next_by_subj":">","seq":1}`,
		} {
			s.try(t, "$JS.API.DIRECT.GET."+stream+"."+example(filter), "_INBOX."+s.member.Name+".x", nil, body)
		}
		config := s.config(filter)
		config["filter_subjects"] = []string{victim}
		s.create(t, stream, filter, config)
		delete(config, "filter_subject")
		s.create(t, stream, filter, config)
		config["filter_subject"] = victim
		s.create(t, stream, filter, config)
	}
}

func (s *siege) isPattern(subject string) bool { return !strings.HasPrefix(subject, "$SYS") }

// config is that of a reader as a daemon makes it.
func (s *siege) config(filter string) map[string]any {
	return map[string]any{
		"name": "kubelot-" + s.member.Name + "-r" + strconv.Itoa(s.attempts), "filter_subject": filter,
		"deliver_subject": "_INBOX." + s.member.Name + ".r", "deliver_policy": "last_per_subject", "ack_policy": "none",
		"replay_policy": "instant", "flow_control": true, "idle_heartbeat": 45 * time.Second,
		"inactive_threshold": 5 * time.Second, "mem_storage": true, "num_replicas": 1,
	}
}

// create asks for a reader by all the requests that there are for it.
func (s *siege) create(t *testing.T, stream, filter string, config map[string]any) {
	t.Helper()
	name, _ := config["name"].(string)
	ask := func(subject string, change map[string]any) {
		with := maps.Clone(config)
		maps.Copy(with, change)
		data, err := json.Marshal(map[string]any{"stream_name": stream, "config": with})
		if err != nil {
			t.Fatal(err)
		}
		s.try(t, subject, "_INBOX."+s.member.Name+".created", nil, string(data))
	}
	ask("$JS.API.CONSUMER.CREATE."+stream+"."+name+"."+filter, nil)
	ask("$JS.API.CONSUMER.CREATE."+stream+"."+name, nil)
	ask("$JS.API.CONSUMER.CREATE."+stream, nil)
	ask("$JS.API.CONSUMER.DURABLE.CREATE."+stream+"."+name, map[string]any{"durable_name": name})
}

// abuseAPI tries what the server's API has besides, and patterns.
func (s *siege) abuseAPI(t *testing.T) {
	t.Helper()
	for _, pattern := range []string{
		">", "*", "*.>", "pod.>", "*.*", "_INBOX.>", "_INBOX.*.>", "_REPLY.>", "$JS.>", "$JS.API.>", "$SYS.>", "history.>",
		"position.>", "event.>", "health.>", "_INBOX.*.x",
	} {
		s.listen(t, pattern)
		for _, stream := range []string{"STATE", "OWN", "EVENT", "HISTORY", "POSITION"} {
			if !s.member.ReadsAll || stream == "POSITION" {
				s.create(t, stream, pattern, s.config(pattern))
			}
		}
	}
	s.oddReaders(t)
	for _, stream := range []string{"STATE", "OWN", "EVENT", "HISTORY", "POSITION", "EVIL", "KV_x"} {
		evil, err := json.Marshal(map[string]any{
			"name": stream, "subjects": []string{"evil.>"}, "storage": "memory", "num_replicas": 1, "allow_direct": true,
			"republish": map[string]any{"src": ">", "dest": "_INBOX." + s.member.Name + ".forbidden.>"},
			"mirror":    map[string]any{"name": "STATE"},
			"sources":   []any{map[string]any{"name": "STATE"}, map[string]any{"name": "EVENT"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, request := range requests {
			subject := strings.Replace(strings.Replace(request, "*", stream, 1), "*", "kubelot-podsync-x", 1)
			for _, body := range []string{
				"", "{}", string(evil), `{"subjects_filter":">"}`, `{"filter":">","purge":true,"seq":1}`,
			} {
				if request == server.JSApiStreamInfo && (body == "" || body == "{}") {
					continue
				}
				s.try(t, subject, s.forbidden(strings.ReplaceAll(subject, "$", "")), nil, body)
			}
		}
	}
	for _, subject := range []string{
		"$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.SERVER.PING.SUBSZ", "$SYS.REQ.USER.INFO",
		"$SYS.REQ.ACCOUNT.PING", "$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.ACCOUNT.$G.CONNZ", "$SYS.REQ.ACCOUNT.$G.JSZ",
		"$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.SERVER.kubelot-bus.RELOAD", "$SYS.DEBUG.SUBSCRIBERS", "$SYS.ACCOUNT.$G.CONNECT",
		"$JSC.R.x", "$OBJ.x.C.y", "$KV.x.y", "$MQTT.sub.x", "$SRV.PING",
	} {
		s.try(t, subject, s.forbidden("sys"), nil, "")
		s.try(t, subject, s.forbidden("sys"), nats.Header{"Nats-Trace-Dest": {"pod.update.x"}}, "{}")
	}
}

// oddReaders tries readers of what may be read, that would stay, wait, or be another's.
func (s *siege) oddReaders(t *testing.T) {
	t.Helper()
	for filter, stream := range s.reads() {
		for _, change := range []map[string]any{
			{"name": "kubelot-podsync2-x"},
			{"name": "x"},
			{"name": "kubelot-status-y"},
			{"durable_name": "kubelot-x"},
			{"deliver_subject": ""},
			{"deliver_subject": "_INBOX.x"},
			{"deliver_group": "all"},
			{"sample_freq": "100%"},
			{"ack_policy": "explicit"},
			{"direct": true},
			{"sourcing": true},
			{"pause_until": time.Now().Add(time.Hour)},
			{"metadata": map[string]string{"x": "y"}},
			{"priority_groups": []string{"x"}, "priority_policy": "overflow"},
			{"deliver_subject": "_INBOX." + s.member.Name + ".>"},
			{"backoff": []int{1}},
			{"num_replicas": 3},
		} {
			config := s.config(filter)
			maps.Copy(config, change)
			if config["name"] == "kubelot-"+s.member.Name+"-y" || config["name"] == "kubelot-"+s.member.Name+"2-x" {
				continue
			}
			s.create(t, stream, filter, config)
		}
	}
}

// requests are the server's API.
var requests = []string{
	server.JSApiAccountInfo, server.JSApiStreams, server.JSApiStreamList, server.JSApiStreamCreate,
	server.JSApiStreamUpdate, server.JSApiStreamInfo, server.JSApiStreamDelete, server.JSApiStreamPurge,
	server.JSApiStreamSnapshot, server.JSApiStreamRestore, server.JSApiMsgDelete, server.JSApiMsgGet,
	server.JSApiConsumerCreate, server.JSApiDurableCreate, server.JSApiConsumers, server.JSApiConsumerList,
	server.JSApiConsumerInfo, server.JSApiConsumerDelete, server.JSApiConsumerPause, server.JSApiConsumerUnpin,
	server.JSApiStreamRemovePeer, server.JSApiStreamEvacuatePeer, server.JSApiStreamCancelMove,
	server.JSApiStreamLeaderStepDown, server.JSApiConsumerLeaderStepDown, server.JSApiConsumerRemovePeer,
	server.JSApiConsumerEvacuatePeer, server.JSApiLeaderStepDown, server.JSApiRemoveServer, server.JSApiEvacuateServer,
	server.JSApiMetaRescue, server.JSApiAccountPurge, server.JSApiServerStreamMove, server.JSApiServerStreamCancelMove,
	"$JS.API.CONSUMER.MSG.NEXT.*.*", "$JS.API.CONSUMER.RESET.*.*", "$JS.API.DIRECT.GET.*",
	"$JS.API.STREAM.TEMPLATE.LIST",
}
