//! The engines, through the real processes: `sage-connector chat`, the executor, and a model's endpoint
//! that says what the test wrote.

mod conversation;

mod openai;

mod context;

mod pi;

mod pi_confinement;

mod pi_real;
