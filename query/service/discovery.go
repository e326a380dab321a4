package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nuid"

	"github.com/tidemark-io/tidemark/query"
)

// discoveryMax is how many requests of each subject of discovery may wait, and
// discoveryBytes how large they may be together; those that come besides are dropped.
const (
	discoveryMax   = 64
	discoveryBytes = 64 << 10
)

// discover answers what NATS micro services are asked about themselves, in the form of
// package micro: $SRV.PING, INFO and STATS, of all, of this service, of this process. Package
// micro itself lets half a million requests wait in each of nine queues, which nobody can
// bound, and the endpoints' requests are refused while as much waits on the connection.
func (s *Service) discover(o Options) error {
	identity := micro.ServiceIdentity{Name: query.Name, ID: nuid.Next(), Version: semantic(o.Version), Metadata: map[string]string{}}
	maps.Copy(identity.Metadata, o.Metadata)
	began := time.Now().UTC()
	for verb, answer := range map[micro.Verb]func() any{
		micro.PingVerb: func() any { return micro.Ping{ServiceIdentity: identity, Type: micro.PingResponseType} },
		micro.InfoVerb: func() any {
			return micro.Info{
				ServiceIdentity: identity, Type: micro.InfoResponseType,
				Description: "counters and unread numbers; ask tidemark.schema what there is", Endpoints: s.infos(),
			}
		},
		micro.StatsVerb: func() any {
			return micro.Stats{ServiceIdentity: identity, Type: micro.StatsResponseType, Started: began, Endpoints: s.statistics()}
		},
	} {
		for _, of := range [][2]string{{"", ""}, {query.Name, ""}, {query.Name, identity.ID}} {
			subject, err := micro.ControlSubject(verb, of[0], of[1])
			if err == nil {
				err = s.subscribe(subject, "", discoveryMax, discoveryBytes, func(m message) { s.tell(m, answer) })
			}
			if err != nil {
				return fmt.Errorf("query: serve %s: %w", subject, err)
			}
		}
	}
	return nil
}

// tell answers a request of discovery.
func (s *Service) tell(m message, answer func() any) {
	if s.misdirects(m) {
		return
	}
	s.backlog.take(len(m.Data))
	if m.Reply == "" {
		return
	}
	body, err := json.Marshal(answer())
	if err == nil {
		err = s.nc.Publish(m.Reply, body)
	}
	if err != nil {
		s.log.Debug("query: an answer could not be sent", "subject", m.Subject, "error", err)
	}
}

func (s *Service) infos() (list []micro.EndpointInfo) {
	for _, e := range s.endpoints {
		list = append(list, micro.EndpointInfo{
			Name: e.name, Subject: e.subject(), QueueGroup: micro.DefaultQueueGroup,
			Metadata: map[string]string{"description": e.description, "request": e.request, "reply": e.reply},
		})
	}
	return list
}

func (s *Service) statistics() (list []*micro.EndpointStats) {
	for _, e := range s.endpoints {
		stats := &micro.EndpointStats{Name: e.name, Subject: e.subject(), QueueGroup: micro.DefaultQueueGroup, ProcessingTime: time.Duration(e.series.took.Load())}
		codes := e.series.byCode()
		for code, n := range codes {
			stats.NumRequests += int(n)
			if code != strconv.Itoa(int(codeOK)) {
				stats.NumErrors += int(n)
			}
		}
		if stats.NumRequests > 0 {
			stats.AverageProcessingTime = stats.ProcessingTime / time.Duration(stats.NumRequests)
		}
		stats.Data, _ = json.Marshal(map[string]any{"answers": codes}) // of strings and numbers
		list = append(list, stats)
	}
	return list
}

// subscribe has handle called with what comes on a subject, of which so many messages and
// bytes may wait; -1: any number.
func (s *Service) subscribe(subject, queue string, messages, size int, handle func(message)) error {
	called := func(m *nats.Msg) { handle(message{m, s.nc}) }
	sub, err := s.nc.QueueSubscribe(subject, queue, called) // "": of no group
	if err != nil {
		return err
	}
	s.subscriptions = append(s.subscriptions, sub)
	return sub.SetPendingLimits(messages, size)
}

// unsubscribe has the server send no more. What has come is handled.
func (s *Service) unsubscribe() (err error) {
	for _, sub := range s.subscriptions {
		if fault := sub.Drain(); !errors.Is(fault, nats.ErrConnectionClosed) { // which sends nothing either
			err = errors.Join(err, fault)
		}
	}
	return err
}
