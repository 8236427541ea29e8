//! Finding addresses over TCP, from servers that are slow, wrong or hostile.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::str::FromStr;
use std::time::Duration;

use ::confine::cancel;
use executor::tools::Failure;
use executor::tools::web::budget::Budget;
use executor::tools::web::dial::Tcp;
use executor::tools::web::dns::ask_all;
use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use protocol::refusal::Code;

/// A DNS server that answers each query of a connection as the script says; its address.
fn server(script: impl Fn(&Message) -> Vec<u8> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            while let Some(query) = receive(&mut stream) {
                if stream.write_all(&script(&query)).is_err() {
                    break;
                }
            }
        }
    });
    address
}

fn receive(stream: &mut TcpStream) -> Option<Message> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut bytes).ok()?;
    Message::from_vec(&bytes).ok()
}

fn framed(message: &Message) -> Vec<u8> {
    let bytes = message.to_vec().expect("a message");
    let length = u16::try_from(bytes.len()).expect("it is short");
    [&length.to_be_bytes()[..], &bytes].concat()
}

fn answer(query: &Message, data: &[RData]) -> Message {
    let mut message =
        Message::new(query.metadata.id, MessageType::Response, query.metadata.op_code);
    message.add_queries(query.queries.clone());
    for data in data {
        message.add_answer(Record::from_rdata(query.queries[0].name().clone(), 60, data.clone()));
    }
    message
}

fn data(query: &Message) -> Vec<RData> {
    match query.queries[0].query_type() {
        RecordType::A => vec![RData::A(A::new(93, 184, 216, 34))],
        _ => vec![RData::AAAA(AAAA::from_str("2606:2800:220:1::1").expect("an address"))],
    }
}

fn good(query: &Message) -> Vec<u8> {
    framed(&answer(query, &data(query)))
}

fn ask(servers: &[SocketAddr], name: &str) -> Result<Vec<IpAddr>, Failure> {
    let (_guard, cancel) = cancel::pair().expect("descriptors");
    ask_all(servers, name, &Tcp, &Budget::new(Duration::from_secs(30), &cancel))
}

fn unreachable(servers: &[SocketAddr]) -> String {
    match ask(servers, "pub.example") {
        Err(Failure::Refusal(no)) => {
            assert_eq!(no.code, Code::HostUnreachable, "{no}");
            no.message
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_families_are_asked_for_and_every_address_comes_back() {
    let found = ask(&[server(good)], "pub.example").expect("it answers");
    let expected: [IpAddr; 2] =
        [[93, 184, 216, 34].into(), "2606:2800:220:1::1".parse().expect("an address")];
    assert_eq!(found, expected);
}

#[test]
fn a_chain_of_aliases_ends_in_addresses_that_will_be_judged() {
    let alias = server(|query| {
        let localhost = Name::from_ascii("localhost.").expect("a name");
        let mut message = answer(query, &[RData::CNAME(CNAME(localhost.clone()))]);
        if query.queries[0].query_type() == RecordType::A {
            message.add_answer(Record::from_rdata(localhost, 60, RData::A(A::new(127, 0, 0, 1))));
        }
        framed(&message)
    });
    assert_eq!(ask(&[alias], "pub.example").expect("it answers"), [IpAddr::from([127, 0, 0, 1])]);
}

#[test]
fn b39_what_is_not_there_and_what_is_broken_is_said() {
    let code = |code: ResponseCode| {
        server(move |query| {
            let mut message = answer(query, &[]);
            message.metadata.response_code = code;
            framed(&message)
        })
    };
    assert_eq!(unreachable(&[code(ResponseCode::NXDomain)]), "There is no host named pub.example.");
    assert_eq!(unreachable(&[code(ResponseCode::NoError)]), "pub.example has no address.");
    assert!(unreachable(&[code(ResponseCode::ServFail)]).contains("cannot be resolved now"));
    assert!(unreachable(&[]).contains("no server"));
}

#[test]
fn an_answer_to_another_question_is_none() {
    let other_id = server(|query| {
        let mut message = answer(query, &data(query));
        message.metadata.id = query.metadata.id.wrapping_add(1);
        framed(&message)
    });
    let other_name = server(|query| {
        let mut message = answer(query, &data(query));
        message.queries[0].set_name(Name::from_ascii("evil.example.").expect("a name"));
        framed(&message)
    });
    let a_query = server(framed);
    let cut = server(|query| {
        let mut message = answer(query, &[]);
        message.metadata.truncation = true;
        framed(&message)
    });
    let noise = server(|_| vec![0, 5, 1, 2, 3, 4, 5]);
    let empty = server(|_| vec![0, 0]);
    for bad in [other_id, other_name, a_query, cut, noise, empty] {
        assert!(unreachable(&[bad]).contains("cannot be resolved now"));
        assert_eq!(ask(&[bad, server(good)], "pub.example").expect("the next one knows").len(), 2);
    }
    let closed =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port").local_addr().expect("bound");
    assert_eq!(ask(&[closed, server(good)], "pub.example").expect("the next one knows").len(), 2);
}

#[test]
fn a_server_that_says_nothing_costs_no_more_than_the_budget() {
    let silent = server(|_| Vec::new());
    let (_guard, cancel) = cancel::pair().expect("descriptors");
    let budget = Budget::new(Duration::from_millis(500), &cancel);
    match ask_all(&[silent, silent], "pub.example", &Tcp, &budget) {
        Err(Failure::Refusal(no)) => assert_eq!(no.code, Code::TimedOut, "{no}"),
        other => panic!("{other:?}"),
    }
}
